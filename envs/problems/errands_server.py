"""The prices of `envs.problems.errands` as an MCP server: python -m envs.problems.errands_server.

Written with the reference SDK, as a person would write one.
"""

from mcp.server.mcpserver import MCPServer

from envs.problems.errands import price

if __name__ == "__main__":
    server = MCPServer("prices")
    server.tool()(price)
    server.run("stdio")
