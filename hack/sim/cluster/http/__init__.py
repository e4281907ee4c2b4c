"""From an HTTP request to an answer, without a socket: routes, access rights, faults on demand, tables, discovery."""
