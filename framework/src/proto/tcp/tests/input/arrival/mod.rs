//! Facts of segment arrival (RFC 9293 3.10.7): state by state, and check by check.

mod blind;
mod closing;
mod cookies;
mod listen;
mod negotiation;
mod paws;
mod sequence;
mod syn_received;
mod syn_sent;
mod time_wait;
mod without_connection;
