//! The state of a connection, and the state that connections share.

mod room;
