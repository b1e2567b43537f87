"""An app with orders and customers. Its tables are created without migrations."""
