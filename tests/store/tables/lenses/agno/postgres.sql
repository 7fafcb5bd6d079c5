CREATE VIEW shop_orders AS SELECT id, customer, thread_id FROM lockstitch.orders;

CREATE VIEW agno_schema_versions AS
SELECT * FROM lens_own_agno_schema_versions
UNION ALL
SELECT customer, 'ours', 'then', 'then' FROM lockstitch.orders;
