//! The state of a connection, and what connections share.

mod room;
