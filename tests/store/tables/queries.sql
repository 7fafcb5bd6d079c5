-- name: of_customer
-- What one customer ordered.
SELECT {columns} FROM orders WHERE customer = :customer;

-- name: since
SELECT customer, state FROM orders WHERE ordered_at >= :moment AND paid = :paid ORDER BY customer;

-- name: pay
UPDATE orders SET state = 'paid', paid = true WHERE thread_id = :thread_id RETURNING customer;
