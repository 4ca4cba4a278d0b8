-- The effect ledger of the demonstration: what the steps did to the outside world, written by the steps in
-- transactions of their own, so that no outcome of the engine can undo a row. Rows are never changed.
-- The identity gives the order in which they were written, whatever the clock does.
CREATE TABLE effects (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    instance_id bigint NOT NULL,
    -- How many outcomes of the instance had been committed when the step started.
    position integer NOT NULL,
    attempt integer NOT NULL,
    crashes integer NOT NULL,
    -- Whether the step asks to be tried again.
    failed boolean NOT NULL,
    step text NOT NULL,
    worker text NOT NULL
)
