/* gw:install */
-- No B-tree of the times of the history. It cost the statement that ends a job more than a quarter of what a row of the
-- history costs, and a quarter of the bytes. The BRIN index of the times finds the rows of a span of time, and a search
-- for the newest rows finds a span that has enough of them.
drop index :SCHEMA.history_ended_at_index;
-- The default partition is deleted from by time, and its BRIN index is summarized by autovacuum only.
create index if not exists history_default_ended_at_index on :SCHEMA._private_history_default (ended_at);
