"""What runs inside the sandbox's own processes. Standard library only: the project is not importable there.

    pool -> launcher -> zygote (its own namespaces, packages loaded) -> one child per execution (PID 1 of its namespace)

The launcher only waits: a PID namespace begins with a process's children. The zygote is trusted and never runs a
model's code, nor reads one: the next child would find it. A child gives up everything before its first line.
"""
