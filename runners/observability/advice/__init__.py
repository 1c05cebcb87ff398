"""What would spread the load of a job better, and what it would cost: the judgement of its balancer, for people."""
