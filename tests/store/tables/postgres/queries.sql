-- name: copied
SELECT setval(pg_get_serial_sequence('lockstitch.orders', 'id'), coalesce(max(id), 0) + 1, false) FROM orders;

-- name: newer
INSERT INTO extension_versions (extension, version, name, applied_at) VALUES ('test_shop', 9, '0009_later_contract', now());
