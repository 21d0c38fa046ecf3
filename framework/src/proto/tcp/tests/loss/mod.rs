//! Losses, and the response to them.

mod congestion;
mod frto;
mod rack;
mod recovery;
mod scoreboard;
