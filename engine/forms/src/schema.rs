//! JSON schemas: what their keywords mean for the nodes.
//!
//! Values are a part of those that the specification allows, never others: an object with declared properties has no more
//! than these, and a keyword that is not understood is refused. `format` is an annotation, as the specification has it.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::error::FormError;
use super::keywords::{
    ANNOTATIONS, CHOICES, TYPES, are_apart, check_keywords, count, is_of, referred, types, unsupported, wrong,
};
use super::node::{Node, NodeId, Property};
use super::number::{Bound, NumberRange};

/// Most bytes of a schema.
pub const MAX_SCHEMA: usize = 256 << 10;
/// Most nodes of a form.
const MAX_NODES: usize = 20_000;
/// Most schemas within each other, references followed.
const MAX_DEPTH: usize = 256;
/// Most values of all lists of values.
const MAX_VALUES: usize = 5_000;
/// Most properties of one object.
const MAX_PROPERTIES: usize = 128;

/// Compiler of schemas into one list of nodes.
#[derive(Debug, Default)]
pub struct Compiler {
    /// Nodes so far.
    pub nodes: Vec<Node>,
    /// Values of lists so far.
    values: usize,
    /// Node of any value, once there is one.
    any: Option<NodeId>,
}

impl Compiler {
    /// Adds a schema.
    ///
    /// # Errors
    ///
    /// If the text is no schema, is too large, or has a keyword that is not understood.
    pub fn add(&mut self, text: &str) -> Result<NodeId, FormError> {
        if text.len() > MAX_SCHEMA {
            return Err(FormError::TooLarge { what: "bytes", limit: MAX_SCHEMA });
        }
        let document: Value = serde_json::from_str(text).map_err(|error| FormError::NotJson(error.to_string()))?;
        Document { compiler: self, root: &document, referred: HashMap::new(), depth: 0 }.schema(&document, "#")
    }

    /// Adds any object.
    pub fn object(&mut self) -> Result<NodeId, FormError> {
        let any = self.any()?;
        self.push(Node::Map(any))
    }

    fn push(&mut self, node: Node) -> Result<NodeId, FormError> {
        if self.nodes.len() >= MAX_NODES {
            return Err(FormError::TooLarge { what: "parts", limit: MAX_NODES });
        }
        self.nodes.push(node);
        Ok((self.nodes.len() - 1) as NodeId)
    }

    fn any(&mut self) -> Result<NodeId, FormError> {
        if let Some(any) = self.any {
            return Ok(any);
        }
        let any = self.push(Node::AnyOf(Vec::new()))?;
        self.any = Some(any);
        let some = [
            Node::Map(any),
            Node::Array { items: any, least: 0, most: u32::MAX },
            Node::String { least: 0, most: u32::MAX },
            Node::Number(NumberRange::new(false, &[], &[])),
            texts(["true", "false", "null"].map(str::to_owned)),
        ];
        let some = some.into_iter().map(|node| self.push(node)).collect::<Result<_, _>>()?;
        self.nodes[any as usize] = Node::AnyOf(some);
        Ok(any)
    }
}

fn texts(texts: impl IntoIterator<Item = String>) -> Node {
    let mut texts: Vec<Box<[u8]>> = texts.into_iter().map(|text| text.into_bytes().into()).collect();
    texts.sort_unstable();
    texts.dedup();
    Node::Texts(texts)
}

/// A schema's document while it is compiled.
struct Document<'a> {
    compiler: &'a mut Compiler,
    root: &'a Value,
    /// Nodes of schemas that references name, by their pointers.
    referred: HashMap<&'a str, NodeId>,
    /// Schemas that this one is within.
    depth: usize,
}

impl<'a> Document<'a> {
    fn schema(&mut self, schema: &'a Value, at: &str) -> Result<NodeId, FormError> {
        if self.depth >= MAX_DEPTH {
            return Err(FormError::TooLarge { what: "levels", limit: MAX_DEPTH });
        }
        self.depth += 1;
        let node = self.inner(schema, at);
        self.depth -= 1;
        node
    }

    fn inner(&mut self, schema: &'a Value, at: &str) -> Result<NodeId, FormError> {
        let fields = match schema {
            Value::Bool(true) => return self.compiler.any(),
            Value::Bool(false) => return self.compiler.push(Node::AnyOf(Vec::new())),
            Value::Object(fields) => fields,
            _ => return wrong(at, "a schema is an object or a boolean"),
        };
        check_keywords(fields, at)?;
        if let Some(choice) = CHOICES.into_iter().find(|choice| fields.contains_key(*choice)) {
            let restricts = |keyword: &&String| *keyword != choice && !ANNOTATIONS.contains(&keyword.as_str());
            if let Some(other) = fields.keys().find(restricts) {
                return unsupported(at, format!("{other}` beside `{choice}"));
            }
            return self.choice(choice, &fields[choice], at);
        }
        if let Some(values) = fields.get("enum") {
            let Some(values) = values.as_array() else { return wrong(at, "`enum` is a list of values") };
            return self.values(values.iter(), fields, at);
        }
        if let Some(value) = fields.get("const") {
            return self.values(std::iter::once(value), fields, at);
        }
        let types = types(fields, at)?;
        if types.is_empty() {
            return self.compiler.any();
        }
        let mut some = Vec::with_capacity(types.len());
        for of in &types {
            some.push(self.of_type(of, fields, at)?);
        }
        match some[..] {
            [one] => Ok(one),
            _ => self.compiler.push(Node::AnyOf(some)),
        }
    }

    /// One of several schemas, or another one.
    fn choice(&mut self, keyword: &str, of: &'a Value, at: &str) -> Result<NodeId, FormError> {
        if keyword == "$ref" {
            return self.reference(of, at);
        }
        let Some(list) = of.as_array().filter(|list| !list.is_empty()) else {
            return wrong(at, format!("`{keyword}` is a list of schemas"));
        };
        let can_tell = keyword == "anyOf" || list.len() == 1 || keyword == "oneOf" && are_apart(self.root, list);
        if !can_tell {
            return unsupported(at, keyword);
        }
        let mut some = Vec::with_capacity(list.len());
        for (index, schema) in list.iter().enumerate() {
            some.push(self.schema(schema, &format!("{at}/{keyword}/{index}"))?);
        }
        self.compiler.push(Node::AnyOf(some))
    }

    fn reference(&mut self, to: &'a Value, at: &str) -> Result<NodeId, FormError> {
        let Some((to, schema)) = to.as_str().and_then(|to| Some((to, referred(self.root, to)?))) else {
            return wrong(at, "a `$ref` names a place of this schema, such as `#/$defs/name`");
        };
        if let Some(known) = self.referred.get(to) {
            return Ok(*known);
        }
        // A place for the schema, which may refer to itself.
        let place = self.compiler.push(Node::AnyOf(Vec::new()))?;
        self.referred.insert(to, place);
        let node = self.schema(schema, to)?;
        self.compiler.nodes[place as usize] = Node::AnyOf(vec![node]);
        Ok(place)
    }

    /// Values of a list, as far as they are of the schema's types.
    fn values(
        &mut self,
        values: impl Iterator<Item = &'a Value>,
        fields: &Map<String, Value>,
        at: &str,
    ) -> Result<NodeId, FormError> {
        let restricts = |keyword: &&String| TYPES.iter().any(|(_, of)| of.contains(&keyword.as_str()));
        if let Some(other) = fields.keys().find(restricts) {
            return unsupported(at, format!("{other}` beside `enum"));
        }
        let types = match fields.contains_key("type") {
            true => types(fields, at)?,
            false => TYPES.iter().map(|(name, _)| *name).collect(),
        };
        let is_typed = |value: &&Value| types.iter().any(|of| is_of(of, value));
        let texts = texts(values.filter(is_typed).map(Value::to_string));
        let Node::Texts(list) = &texts else { return self.compiler.push(texts) };
        self.compiler.values += list.len();
        if self.compiler.values > MAX_VALUES {
            return Err(FormError::TooLarge { what: "listed values", limit: MAX_VALUES });
        }
        self.compiler.push(texts)
    }

    fn of_type(&mut self, of: &str, fields: &'a Map<String, Value>, at: &str) -> Result<NodeId, FormError> {
        let node = match of {
            "null" => texts(["null".to_owned()]),
            "boolean" => texts(["true", "false"].map(str::to_owned)),
            "string" => Node::String {
                least: count(fields, "minLength", at)?.unwrap_or(0),
                most: count(fields, "maxLength", at)?.unwrap_or(u32::MAX),
            },
            "array" => {
                let items = match fields.get("items") {
                    Some(items) => self.schema(items, &format!("{at}/items"))?,
                    None => self.compiler.any()?,
                };
                let most = count(fields, "maxItems", at)?.unwrap_or(u32::MAX);
                Node::Array { items, least: count(fields, "minItems", at)?.unwrap_or(0), most }
            }
            "object" => self.object(fields, at)?,
            _ => {
                let bound = |keyword: &str, excluded: bool| match fields.get(keyword) {
                    None => Ok(None),
                    Some(Value::Number(number)) => Ok(number.as_f64().map(|at| Bound { at, excluded })),
                    Some(_) => wrong(at, format!("`{keyword}` is a number")),
                };
                let low = [bound("minimum", false)?, bound("exclusiveMinimum", true)?];
                let high = [bound("maximum", false)?, bound("exclusiveMaximum", true)?];
                let [low, high] = [low, high].map(|bounds| bounds.into_iter().flatten().collect::<Vec<_>>());
                Node::Number(NumberRange::new(of == "integer", &low, &high))
            }
        };
        self.compiler.push(node)
    }

    fn object(&mut self, fields: &'a Map<String, Value>, at: &str) -> Result<Node, FormError> {
        let declared = match fields.get("properties") {
            None => None,
            Some(Value::Object(properties)) => Some(properties),
            Some(_) => return wrong(at, "`properties` is an object of schemas"),
        };
        let required: Vec<&str> = match fields.get("required") {
            None => Vec::new(),
            Some(Value::Array(names)) if names.iter().all(Value::is_string) => {
                names.iter().filter_map(Value::as_str).collect()
            }
            Some(_) => return wrong(at, "`required` is a list of names"),
        };
        let mut values: Vec<(&str, NodeId)> = Vec::new();
        for (name, schema) in declared.into_iter().flatten() {
            values.push((name, self.schema(schema, &format!("{at}/properties/{name}"))?));
        }
        let is_declared = |name: &&str| declared.is_some_and(|declared| declared.contains_key(*name));
        let undeclared: Vec<&str> = required.iter().copied().filter(|name| !is_declared(name)).collect();
        let others = match fields.get("additionalProperties") {
            None | Some(Value::Bool(true)) => self.compiler.any()?,
            Some(schema) => self.schema(schema, &format!("{at}/additionalProperties"))?,
        };
        let open = match fields.get("additionalProperties") {
            None => declared.is_none(),
            Some(schema) => *schema != Value::Bool(false),
        };
        if values.is_empty() && undeclared.is_empty() && open {
            return Ok(Node::Map(others));
        }
        values.extend(undeclared.into_iter().map(|name| (name, others)));
        values.sort_unstable();
        values.dedup();
        if values.len() > MAX_PROPERTIES {
            return Err(FormError::TooLarge { what: "properties of one object", limit: MAX_PROPERTIES });
        }
        let mut properties: Vec<(Property, bool)> = values
            .into_iter()
            .map(|(name, value)| {
                let text = format!("{}:", Value::from(name)).into_bytes().into();
                (Property { text, value }, required.contains(&name))
            })
            .collect();
        properties.sort_unstable_by(|(one, _), (other, _)| one.text.cmp(&other.text));
        let bits = properties.iter().enumerate().filter(|(_, (_, required))| *required);
        let required = bits.fold(0, |bits, (at, _)| bits | 1 << at);
        Ok(Node::Object { properties: properties.into_iter().map(|(property, _)| property).collect(), required })
    }
}
