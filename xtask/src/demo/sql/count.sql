-- Counts the terminal orders and the effects, for the progress bar.
SELECT
    (SELECT coalesce(sum(instances), 0)::bigint FROM finished) AS terminal,
    (SELECT count(*) FROM effects) AS effects
