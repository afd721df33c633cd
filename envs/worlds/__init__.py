"""The environments that `env.name` can name, one file each."""
