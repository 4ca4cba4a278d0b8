-- Reads the line items that were picked.
SELECT order_number, line
FROM picked_lines
