//! What a connection remembers, and what connections share.

mod room;
