"""Applications: each brings its tables, agents, routes and pages. They use what anybody can use."""
