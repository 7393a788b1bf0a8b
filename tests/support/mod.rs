//! Shared test support: a world per test, a scripted model, a scripted server, checks of histories.

pub mod artifacts;
pub mod family;
pub mod history;
pub mod model;
pub mod pairing;
pub mod scripted;
pub mod stamp;
pub mod tool;
pub mod world;
