//! The server with the demo model, in this process, on a port of its own.
