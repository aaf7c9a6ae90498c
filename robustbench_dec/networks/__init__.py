"""Who talks to whom: graphs, faults, and the processes that share the nodes."""
