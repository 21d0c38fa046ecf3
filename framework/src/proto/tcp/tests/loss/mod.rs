//! What is lost, and what is done about it.

mod congestion;
mod frto;
mod rack;
mod recovery;
mod scoreboard;
