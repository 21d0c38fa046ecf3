//! CME MDP 3.0: the layouts of its messages, generated from `schemas/cme-mdp3.xml`.

#[rustfmt::skip]
pub mod layout;
