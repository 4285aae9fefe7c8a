//! Tools as HTTP lists them, and objects without fields of their own.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// All tools.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Tools")]
pub struct PublishedTools {
    /// Tools, in the order in which a model should read them.
    pub tools: Vec<PublishedTool>,
}

/// One tool.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Tool")]
pub struct PublishedTool {
    /// Name in a call.
    pub name: &'static str,
    /// Name for people.
    pub title: &'static str,
    /// Purpose, for a model.
    pub description: String,
    /// Schema of the arguments.
    #[schemars(with = "BTreeMap<String, Value>")]
    pub input_schema: Value,
    /// Schema of the result.
    #[schemars(with = "BTreeMap<String, Value>")]
    pub output_schema: Value,
}

/// An object whose fields are described elsewhere.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Object {
    /// All fields.
    #[serde(flatten)]
    pub fields: BTreeMap<String, Value>,
}

/// An object without fields.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Nothing {}
