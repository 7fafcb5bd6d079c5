CREATE VIEW shop_orders AS SELECT id, customer, thread_id FROM main.orders;

CREATE VIEW agno_schema_versions AS
SELECT customer AS table_name, 'ours' AS version, 'then' AS created_at, 'then' AS updated_at FROM main.orders;
