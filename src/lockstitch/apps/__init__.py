"""Applications: each has its tables, agents, routes and pages. They use only public names of Lockstitch."""
