"""What durability costs a chain of stages, and what reading before it would gain."""
