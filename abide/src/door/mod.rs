//! The doors: where what the house knows becomes words for a person, a model or a wire.

pub mod cli;
pub mod digest;
<<<<<<< HEAD
pub mod keys;
pub mod http;
=======
>>>>>>> main
pub mod mask;
