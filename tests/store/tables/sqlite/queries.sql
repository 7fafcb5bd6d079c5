-- name: copied
SELECT max(id) FROM orders;

-- name: newer
INSERT INTO extension_versions (extension, version, name, applied_at) VALUES ('test_shop', 9, '0009_later_contract', '2026-01-01T00:00:00.000000Z');
