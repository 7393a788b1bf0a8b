//! Static parser of command lines: returns the simple commands that a shell would run.
//!
//! A line cannot be parsed if the shell could run something that differs from its literal words:
//! expansions, globs, substitutions, groups, keywords, here documents, comments. Single quotes, and
//! backslashes outside of quotes, are supported. Double quotes are supported only without `$`, `` `
//! ``, `\` and `!`.

/// Maximum number of words in a line. The work grows with the square of this number.
const MAX_WORDS: usize = 64;

/// The simple commands of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandLine {
    pub(super) parts: Vec<SimpleCommand>,
}

/// A program with its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct SimpleCommand {
    /// The program and its arguments: at least one word.
    pub(super) words: Vec<String>,
    /// Whether it has a redirection other than to `/dev/null` or another descriptor.
    pub(super) has_redirection: bool,
    /// Whether variables are set for it: `NAME=VALUE program`.
    pub(super) has_assignment: bool,
    /// Whether it reads the output of another command through a pipe.
    pub(super) reads_pipe: bool,
}

/// Words with a special meaning in the position of a program name.
const KEYWORDS: [&str; 20] = [
    "!", "[[", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function",
    "if", "in", "select", "then", "until", "while", "{", "}",
];

impl CommandLine {
    /// Parses a line; `None` if it cannot be parsed statically, or is empty.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parser = Parser {
            rest: text.chars().peekable(),
            parts: Vec::new(),
            part: SimpleCommand::default(),
        };
        parser.run()?;
        let words: usize = parser.parts.iter().map(|part| part.words.len()).sum();
        (!parser.parts.is_empty() && words <= MAX_WORDS).then_some(Self {
            parts: parser.parts,
        })
    }
}

/// A program with its arguments that a simple command may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Invocation<'a> {
    /// Base name of the program.
    pub(super) program: String,
    pub(super) arguments: &'a [String],
}

impl SimpleCommand {
    pub(super) fn program(&self) -> &str {
        &self.words[0]
    }
}

struct Parser<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    parts: Vec<SimpleCommand>,
    part: SimpleCommand,
}

impl Parser<'_> {
    fn run(&mut self) -> Option<()> {
        while let Some(&c) = self.rest.peek() {
            match c {
                ' ' | '\t' => drop(self.rest.next()),
                '\n' | ';' | '&' | '|' => self.operator()?,
                '<' | '>' => self.redirection()?,
                '#' | '(' | ')' => return None,
                _ => self.word()?,
            }
        }
        // A line may end after `;` and `&`, but not after `|`.
        if self.part.words.is_empty() && self.part.reads_pipe {
            return None;
        }
        self.end_part()
    }

    /// Consumes a separator between two commands.
    fn operator(&mut self) -> Option<()> {
        let first = self.rest.next()?;
        let is_double = first != '\n' && self.rest.next_if_eq(&first).is_some();
        match (first, is_double) {
            ('\n', _) => self.end_part(),
            (';', true) => None,
            ('&', false) if self.rest.peek() == Some(&'>') => self.redirection(),
            (';' | '&', false) if self.part.words.is_empty() => None,
            (';' | '&', _) => self.end_part(),
            _ if self.part.words.is_empty() => None,
            _ => {
                // `|&` also pipes standard error.
                self.rest.next_if_eq(&'&');
                self.end_part()?;
                self.part.reads_pipe = !is_double;
                Some(())
            }
        }
    }

    fn end_part(&mut self) -> Option<()> {
        let part = std::mem::take(&mut self.part);
        if part.words.is_empty() {
            // Only redirections or assignments, without a program.
            return (!part.has_redirection && !part.has_assignment && !part.reads_pipe)
                .then_some(());
        }
        if KEYWORDS.contains(&part.words[0].as_str()) {
            return None;
        }
        self.parts.push(part);
        Some(())
    }

    /// Consumes a redirection. Only redirections to `/dev/null` and to descriptors write no file.
    fn redirection(&mut self) -> Option<()> {
        self.rest.next()?;
        if self.rest.next_if_eq(&'<').is_some() {
            return None; // a here document or here string
        }
        for second in ['>', '|', '>'] {
            self.rest.next_if_eq(&second);
        }
        if self.rest.peek() == Some(&'(') {
            return None;
        }
        let to_descriptor = self.rest.next_if_eq(&'&').is_some();
        while self.rest.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
        let (target, _) = self.text()?;
        let is_descriptor =
            to_descriptor && (target == "-" || target.bytes().all(|byte| byte.is_ascii_digit()));
        if target.is_empty() {
            return None;
        }
        self.part.has_redirection |= !is_descriptor && target != "/dev/null";
        Some(())
    }

    /// Consumes a word, an assignment, or the descriptor number of a redirection.
    fn word(&mut self) -> Option<()> {
        let (word, was_quoted) = self.text()?;
        let next_redirects = matches!(self.rest.peek(), Some('<' | '>'));
        if !was_quoted && next_redirects && word.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some(());
        }
        let is_assignment = self.part.words.is_empty()
            && word.split_once('=').is_some_and(|(name, _)| {
                let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '+');
                !name.is_empty()
                    && name.chars().all(is_name)
                    && !name.starts_with(|c: char| c.is_ascii_digit())
            });
        if is_assignment {
            self.part.has_assignment = true;
        } else {
            self.part.words.push(word);
        }
        Some(())
    }

    /// Consumes the text of a word; the flag is true if a part of it was quoted.
    fn text(&mut self) -> Option<(String, bool)> {
        let mut text = String::new();
        let mut was_quoted = false;
        while let Some(&c) = self.rest.peek() {
            match c {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' => break,
                '\'' => {
                    self.rest.next();
                    was_quoted = true;
                    loop {
                        match self.rest.next()? {
                            '\'' => break,
                            c => text.push(c),
                        }
                    }
                }
                '"' => {
                    self.rest.next();
                    was_quoted = true;
                    loop {
                        match self.rest.next()? {
                            '"' => break,
                            '$' | '`' | '\\' | '!' => return None,
                            c => text.push(c),
                        }
                    }
                }
                '\\' => {
                    self.rest.next();
                    was_quoted = true;
                    text.push(self.rest.next().filter(|c| *c != '\n')?);
                }
                '$' | '`' | '*' | '?' | '[' | ']' | '{' | '}' | '(' | ')' | '!' | '^' | '\r'
                | '\0' => return None,
                // `~` is a home directory at the start of a word and after `=` or `:`. Elsewhere it
                // is an ordinary character.
                '~' if text.is_empty() || text.ends_with(['=', ':']) => return None,
                _ => {
                    self.rest.next();
                    text.push(c);
                }
            }
        }
        // Some shell commands evaluate their arguments a second time.
        let is_evaluated = ["$(", "`", "[$"].iter().any(|sign| text.contains(sign));
        (!is_evaluated).then_some((text, was_quoted))
    }
}
