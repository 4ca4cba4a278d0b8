-- The line items that were picked, each by a row that is committed with the outcome of its step. Nothing here
-- forbids a second row: that there is none is for the engine to see to.
CREATE TABLE picked_lines (
    order_number bigint NOT NULL,
    line bigint NOT NULL
)
