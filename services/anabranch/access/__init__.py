"""Rights on the log (ACLs) that each process of a pipeline or a federation needs, and no others."""
