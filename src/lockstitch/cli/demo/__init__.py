"""The demonstration: an agent is killed in the middle of a payment, and nothing is paid twice."""
