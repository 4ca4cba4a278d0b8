-- Counts the terminal orders and the effects, for the progress bar. Each line item that was picked is a terminal
-- instance too, as both are one commit.
SELECT
    (SELECT coalesce(sum(instances), 0)::bigint FROM finished) - (SELECT count(*) FROM picked_lines) AS terminal,
    (SELECT count(*) FROM effects) AS effects
