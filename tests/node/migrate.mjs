// Install graphile-worker's schema: migrate.mjs URL SCHEMA
import { Logger, runMigrations } from "graphile-worker";

const [connectionString, schema] = process.argv.slice(1);
await runMigrations({ connectionString, schema, logger: new Logger(() => () => {}) });
