//! Values of front matter: texts with or without quotes, and lists of texts.
//!
//! Pure. Error messages continue a sentence that starts with the key.

/// Value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// Nothing on the line of the key; a list may follow.
    Empty,
    /// A text without quotes, which includes numbers and booleans.
    Plain(String),
    Quoted(String),
    List(Vec<String>),
    /// Keys with values, or a list of lists.
    Nested,
}

impl Value {
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Plain(text) | Self::Quoted(text) => Some(text),
            Self::Empty | Self::List(_) | Self::Nested => None,
        }
    }

    pub(crate) fn plain(&self) -> Option<&str> {
        match self {
            Self::Plain(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn list(&self) -> Option<&[String]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// Adds an item that is on a line of its own.
    pub(crate) fn push(&mut self, text: &str) -> Result<(), String> {
        let item = match parse(text)? {
            Self::Plain(item) | Self::Quoted(item) => item,
            Self::Empty => {
                return Err("has an item without a value: set one, or remove the line".into());
            }
            Self::List(_) | Self::Nested => {
                return Err("has a nested list: write one text per item".into());
            }
        };
        match self {
            Self::List(items) => items.push(item),
            _ => *self = Self::List(vec![item]),
        }
        Ok(())
    }
}

/// Returns the text after the `-` of a list item.
pub(crate) fn item(line: &str) -> Option<&str> {
    match line.strip_prefix('-')? {
        "" => Some(""),
        rest => rest.starts_with([' ', '\t']).then(|| rest.trim()),
    }
}

/// Parses the value of a key or of an item, without surrounding whitespace.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    match text.chars().next() {
        None | Some('#') => Ok(Value::Empty),
        Some('[') => list(&text[1..]),
        Some(quote @ ('"' | '\'')) => {
            let (inner, rest) = quoted(&text[1..], quote)?;
            require_end(rest).map(|()| Value::Quoted(inner))
        }
        Some(_) => plain(text).map(|text| Value::Plain(text.to_owned())),
    }
}

/// Parses a text without quotes.
fn plain(text: &str) -> Result<&str, String> {
    if text.starts_with(['|', '>']) {
        return Err("spans several lines, which is not supported: write it on one line".into());
    }
    if text.starts_with(['{', '}', ']', '&', '*', '!', '%', '@', '`', ','])
        || text == "-"
        || text.starts_with("- ")
    {
        return Err(
            "begins with a character that has a meaning in YAML: put the text in quotes".into(),
        );
    }
    if text.contains(" #") || text.contains("\t#") {
        return Err("contains ` #`, which starts a comment in YAML: put the text in quotes, or the comment on a \
                    separate line"
            .into());
    }
    Ok(text)
}

/// Parses a text up to its closing quote. Also returns the text after that quote.
fn quoted(text: &str, quote: char) -> Result<(String, &str), String> {
    let mut inner = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' if quote == '\'' && chars.next_if(|(_, next)| *next == '\'').is_some() => {
                inner.push('\'')
            }
            c if c == quote => return Ok((inner, &text[at + c.len_utf8()..])),
            '\\' if quote == '"' => inner.push(match chars.next() {
                Some((_, c @ ('"' | '\\' | '/'))) => c,
                Some((_, 'n')) => '\n',
                Some((_, 't')) => '\t',
                _ => return Err(r#"has an unsupported escape; supported are \" \\ \n \t"#.into()),
            }),
            c => inner.push(c),
        }
    }
    Err(format!("has no closing {quote} on its line"))
}

/// Parses a list after its `[`. It must end on the same line.
fn list(text: &str) -> Result<Value, String> {
    let mut items = Vec::new();
    let mut rest = text.trim_start();
    let unclosed = || {
        "has no closing ] on its line; to use several lines, write one `- a` per line".to_owned()
    };
    loop {
        if let Some(behind) = rest.strip_prefix(']') {
            return require_end(behind).map(|()| Value::List(items));
        }
        let quote = rest.chars().next().ok_or_else(unclosed)?;
        if matches!(quote, '"' | '\'') {
            let (inner, behind) = quoted(&rest[1..], quote)?;
            items.push(inner);
            rest = behind.trim_start();
        } else {
            let end = rest.find([',', ']', '[']).ok_or_else(unclosed)?;
            let item = rest[..end].trim();
            if item.is_empty() || rest[end..].starts_with('[') {
                return Err("must have one text between two commas of its list".into());
            }
            items.push(plain(item)?.to_owned());
            rest = &rest[end..];
        }
        match rest.strip_prefix(',') {
            Some(behind) => rest = behind.trim_start(),
            None if rest.starts_with(']') => {}
            None if rest.is_empty() => return Err(unclosed()),
            None => return Err("needs a comma between the items of its list".into()),
        }
    }
}

/// Checks that a value is followed by nothing except a comment.
fn require_end(rest: &str) -> Result<(), String> {
    let text = rest.trim_start();
    if text.is_empty() || (text.starts_with('#') && text.len() < rest.len()) {
        Ok(())
    } else {
        Err(format!("has text after its value: {text:?}"))
    }
}
