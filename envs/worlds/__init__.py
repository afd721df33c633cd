"""The environments that `env.name` can name, one file each; those of one paper alone are in `envs/papers`."""
