"""A search over hyper-parameters whose trials are paid for in privacy, all together."""
