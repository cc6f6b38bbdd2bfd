//! Schemas for the tests: some as programs send them, and any number drawn from a seed.

use serde_json::{Map, Value, json};

/// Random numbers of a seed (xorshift).
pub struct Draws(u64);

impl Draws {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

/// Names with quotes, escapes and letters of several bytes among them.
const NAMES: [&str; 10] =
    ["city", "a", "ab", "unit_of_measure", "größe", "日付", "with \"quotes\"", "back\\slash", "x y", "🙂"];

/// A schema of a seed. Half of them refer to a definition, which may refer to itself.
pub fn schema(seed: u64) -> Value {
    let mut draws = Draws::new(seed);
    let refers = draws.chance(2);
    let mut schema = object(&mut draws, 3, refers);
    if refers {
        // What refers to itself has a way out.
        let inner = object(&mut draws, 2, true);
        let node = json!({"anyOf": [{"type": "null"}, inner, {"type": "array", "items": {"$ref": "#/$defs/node"}}]});
        schema.as_object_mut().unwrap().insert("$defs".to_owned(), json!({"node": node}));
    }
    schema
}

fn object(draws: &mut Draws, depth: usize, refers: bool) -> Value {
    let mut properties = Map::new();
    for _ in 0..draws.below(5) {
        let name = NAMES[draws.below(NAMES.len())];
        let of = any(draws, depth.saturating_sub(1), refers);
        properties.insert(name.to_owned(), of);
    }
    let required: Vec<String> = properties.keys().filter(|_| !draws.chance(3)).cloned().collect();
    let mut schema = json!({"type": "object", "properties": properties, "required": required});
    let additional = match draws.below(4) {
        0 => return schema,
        1 => any(draws, depth.saturating_sub(1), false),
        _ => Value::Bool(false),
    };
    schema.as_object_mut().unwrap().insert("additionalProperties".to_owned(), additional);
    schema
}

fn any(draws: &mut Draws, depth: usize, refers: bool) -> Value {
    match draws.below(if depth == 0 { 8 } else { 12 }) {
        0 => string(draws),
        1 => number(draws, "integer"),
        2 => number(draws, "number"),
        3 => json!({"type": "boolean", "description": "Yes or no."}),
        4 => json!({"enum": ["metric", "metric system", "im\"perial", 1, 12, -1.5, true, null, {"a": [1]}]}),
        5 => json!({"const": NAMES[draws.below(NAMES.len())]}),
        6 => json!({"type": ["string", "null"], "title": "Maybe"}),
        7 if refers => json!({"$ref": "#/$defs/node"}),
        7 => json!({}),
        8 => array(draws, depth, refers),
        9 => object(draws, depth, refers),
        10 => {
            let some: Vec<Value> = (0..=draws.below(3)).map(|_| any(draws, depth - 1, refers)).collect();
            json!({"anyOf": some})
        }
        _ => {
            let alternative = |kind: &str, of: Value| json!({"type": "object", "properties": {"kind": {"const": kind}, "of": of}, "required": ["kind", "of"]});
            let [one, other] = [0, 1].map(|_| any(draws, depth - 1, refers));
            json!({"oneOf": [alternative("one", one), alternative("other", other)]})
        }
    }
}

fn string(draws: &mut Draws) -> Value {
    let mut schema = json!({"type": "string"});
    let least = draws.below(4);
    for (keyword, of) in [("minLength", least), ("maxLength", least + draws.below(40))] {
        if draws.chance(2) {
            schema.as_object_mut().unwrap().insert(keyword.to_owned(), of.into());
        }
    }
    schema
}

fn number(draws: &mut Draws, kind: &str) -> Value {
    let mut schema = json!({"type": kind});
    let (low, more) = (draws.below(2001), draws.below(300));
    let fields = schema.as_object_mut().unwrap();
    // Fractions as well, and ranges of one number.
    let unit = if kind == "integer" { 1.0 } else { 0.25 };
    let low = (i32::try_from(low).unwrap() - 1000) as f64 * unit;
    let high = low + more as f64 * unit;
    if draws.chance(2) {
        fields.insert("minimum".to_owned(), low.into());
    }
    if draws.chance(2) {
        fields.insert("maximum".to_owned(), high.into());
    }
    if draws.chance(6) {
        fields.insert("exclusiveMaximum".to_owned(), (high + 1.0).into());
    }
    if draws.chance(6) {
        fields.insert("exclusiveMinimum".to_owned(), (low - 1.0).into());
    }
    schema
}

fn array(draws: &mut Draws, depth: usize, refers: bool) -> Value {
    let mut schema = json!({"type": "array", "items": any(draws, depth - 1, refers)});
    let least = draws.below(3);
    for (keyword, of) in [("minItems", least), ("maxItems", least + draws.below(4))] {
        if draws.chance(2) {
            schema.as_object_mut().unwrap().insert(keyword.to_owned(), of.into());
        }
    }
    schema
}

/// Schemas in the styles of OpenAI's guides, of pydantic, and of tools in the wild.
pub fn published() -> Vec<Value> {
    let texts = [
        r#"{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}"#,
        r#"{"type": "object", "properties": {"steps": {"type": "array", "items": {"type": "object",
            "properties": {"explanation": {"type": "string"}, "output": {"type": "string"}},
            "required": ["explanation", "output"], "additionalProperties": false}}, "final_answer": {"type": "string"}},
            "required": ["steps", "final_answer"], "additionalProperties": false}"#,
        r##"{"type": "object", "properties": {"type": {"type": "string", "enum": ["div", "button", "form"]},
            "label": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}},
            "attributes": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"},
            "value": {"type": "string"}}, "additionalProperties": false, "required": ["name", "value"]}}},
            "required": ["type", "label", "children", "attributes"], "additionalProperties": false}"##,
        r##"{"$defs": {"Item": {"properties": {"name": {"title": "Name", "type": "string"}, "price": {"title": "Price",
            "type": "number", "minimum": 0}, "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null}},
            "required": ["name", "price"], "title": "Item", "type": "object"}}, "properties": {"items": {"items":
            {"$ref": "#/$defs/Item"}, "title": "Items", "type": "array", "minItems": 1}}, "required": ["items"],
            "title": "Order", "type": "object"}"##,
        r#"{"type": "object", "properties": {}}"#,
        r#"{"type": "object", "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 9}}"#,
        "{}",
        "true",
        r#"{"type": "array", "items": {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}, "minItems": 2}"#,
        r#"{"enum": ["yes", "no"]}"#,
        r##"{"definitions": {"list": {"type": "object", "properties": {"value": {"type": "integer"}, "next": {"anyOf":
            [{"$ref": "#/definitions/list"}, {"type": "null"}]}}, "required": ["value", "next"],
            "additionalProperties": false}}, "$ref": "#/definitions/list"}"##,
        r#"{"type": "object", "properties": {"when": {"type": "string", "format": "date-time"}}, "required": ["when"]}"#,
    ];
    texts.iter().map(|text| serde_json::from_str(text).unwrap()).collect()
}
