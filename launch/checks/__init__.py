"""What is refused or warned of before an actor starts: memory, machines, models, prompts, deadlines."""
