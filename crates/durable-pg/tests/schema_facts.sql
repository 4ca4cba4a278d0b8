-- What a schema holds, one line per fact, in an order that depends on names only.
WITH relation AS (
    SELECT class.*, format('%I.%I', namespace.nspname, class.relname) AS name
    FROM pg_class AS class
    JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
    WHERE namespace.nspname = $1::text
)
SELECT line
FROM (
    SELECT 'type ' || format('%I.%I', namespace.nspname, type.typname) || ' enum ('
        || string_agg(label.enumlabel, ', ' ORDER BY label.enumsortorder) || ')' AS line
    FROM pg_type AS type
    JOIN pg_namespace AS namespace ON namespace.oid = type.typnamespace
    JOIN pg_enum AS label ON label.enumtypid = type.oid
    WHERE namespace.nspname = $1::text
    GROUP BY namespace.nspname, type.typname
    UNION ALL
    SELECT CASE relkind WHEN 'r' THEN 'table ' WHEN 'v' THEN 'view ' WHEN 'S' THEN 'sequence ' ELSE relkind::text || ' ' END
        || name
        || coalesce(' with ' || nullif(ARRAY(SELECT unnest(reloptions) ORDER BY 1), '{}')::text, '')
    FROM relation
    WHERE relkind <> 'i'
    UNION ALL
    SELECT format('column %s.%s %s', relation.name, to_char(attribute.attnum, 'FM00'), attribute.attname)
        || ' ' || format_type(attribute.atttypid, attribute.atttypmod)
        || CASE WHEN attribute.attnotnull THEN ' not null' ELSE '' END
        || CASE attribute.attidentity WHEN 'd' THEN ' identity by default' WHEN 'a' THEN ' identity always' ELSE '' END
        || coalesce(' default ' || pg_get_expr(expression.adbin, expression.adrelid), '')
    FROM relation
    JOIN pg_attribute AS attribute
        ON attribute.attrelid = relation.oid AND attribute.attnum > 0 AND NOT attribute.attisdropped
    LEFT JOIN pg_attrdef AS expression
        ON expression.adrelid = relation.oid AND expression.adnum = attribute.attnum
    WHERE relation.relkind = 'r'
    UNION ALL
    SELECT 'index ' || pg_get_indexdef(relation.oid)
    FROM relation
    WHERE relation.relkind = 'i'
    UNION ALL
    -- Newer servers list NOT NULL as a constraint too: the columns say it already.
    SELECT format('constraint %s.%I %s', relation.name, restriction.conname, pg_get_constraintdef(restriction.oid))
    FROM relation
    JOIN pg_constraint AS restriction ON restriction.conrelid = relation.oid
    WHERE restriction.contype <> 'n'
    UNION ALL
    SELECT 'trigger ' || pg_get_triggerdef(trigger.oid)
    FROM relation
    JOIN pg_trigger AS trigger ON trigger.tgrelid = relation.oid AND NOT trigger.tgisinternal
    UNION ALL
    SELECT 'function ' || pg_get_functiondef(routine.oid)
    FROM pg_proc AS routine
    JOIN pg_namespace AS namespace ON namespace.oid = routine.pronamespace
    WHERE namespace.nspname = $1::text AND routine.prokind IN ('f', 'p')
) AS fact
ORDER BY line COLLATE "C"
