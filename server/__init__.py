"""The private HTTP server: routes, requests, streams and the queue. Joins `auth` and `engine`."""
