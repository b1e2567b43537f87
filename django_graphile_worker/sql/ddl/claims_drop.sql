drop function if exists :SCHEMA._private_claim_jobs(text, int[], int, int, int, text[], timestamptz);
drop function if exists :SCHEMA._private_pick_queues(int[], int, timestamptz, text[], int);
