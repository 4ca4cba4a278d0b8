-- Picks a line item; committed with the outcome of the step, or not at all.
INSERT INTO picked_lines (order_number, line)
VALUES ($1::bigint, $2::bigint)
