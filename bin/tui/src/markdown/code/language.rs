//! The languages whose code is colored: how their comments and strings look, and their keywords.

/// How a string is written.
#[derive(Debug)]
pub(super) struct Quote {
    pub(super) open: &'static str,
    pub(super) close: &'static str,
    /// Whether a backslash escapes the next character.
    pub(super) has_escapes: bool,
    /// Whether the string may contain line breaks.
    pub(super) spans_lines: bool,
}

/// Names that are colored like keywords.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColoredNames {
    /// Nothing.
    None,
    /// A string in front of a colon, as in JSON.
    QuotedKeys,
    /// The text in front of the first colon of a line, as in YAML.
    KeysBeforeColon,
    /// The text in front of the first equals sign of a line, and lines in brackets, as in TOML.
    KeysBeforeEquals,
    /// The name after `<` or `</`.
    Tags,
}

/// A language or a family of similar ones.
#[derive(Debug)]
pub(super) struct Language {
    /// Names in the info string of a code block, in lower case and separated by spaces.
    names: &'static str,
    /// Texts that start a comment up to the end of the line.
    pub(super) line_comments: &'static [&'static str],
    /// Start and end of a comment that may span lines.
    pub(super) block_comment: Option<(&'static str, &'static str)>,
    /// A longer quote stands before a shorter one with the same start.
    pub(super) quotes: &'static [Quote],
    /// Separated by spaces.
    keywords: &'static str,
    /// Whether keywords may be written in upper case.
    ignores_case: bool,
    pub(super) colored_names: ColoredNames,
}

const fn quote(mark: &'static str, has_escapes: bool, spans_lines: bool) -> Quote {
    Quote {
        open: mark,
        close: mark,
        has_escapes,
        spans_lines,
    }
}

const DOUBLE: Quote = quote("\"", true, false);
const SINGLE: Quote = quote("'", true, false);
const BLOCK: Option<(&str, &str)> = Some(("/*", "*/"));

/// A language with the comments and strings of C.
const fn c_like(names: &'static str, keywords: &'static str) -> Language {
    Language {
        names,
        line_comments: &["//"],
        block_comment: BLOCK,
        quotes: &[DOUBLE, SINGLE],
        keywords,
        ignores_case: false,
        colored_names: ColoredNames::None,
    }
}

/// A language whose comments start with `#`.
const fn script(names: &'static str, keywords: &'static str) -> Language {
    Language {
        line_comments: &["#"],
        block_comment: None,
        ..c_like(names, keywords)
    }
}

const LANGUAGES: &[Language] = &[
    Language {
        // A lifetime looks like the start of a character, so `'` is a quote only in front of `"`
        // and `\`.
        quotes: &[
            Quote {
                open: "'\"",
                close: "'",
                has_escapes: false,
                spans_lines: false,
            },
            Quote {
                open: "'\\",
                close: "'",
                has_escapes: false,
                spans_lines: false,
            },
            Quote {
                open: "r##\"",
                close: "\"##",
                has_escapes: false,
                spans_lines: true,
            },
            Quote {
                open: "r#\"",
                close: "\"#",
                has_escapes: false,
                spans_lines: true,
            },
            Quote {
                open: "r\"",
                close: "\"",
                has_escapes: false,
                spans_lines: true,
            },
            Quote {
                open: "br\"",
                close: "\"",
                has_escapes: false,
                spans_lines: true,
            },
            quote("\"", true, true),
        ],
        ..c_like(
            "rust rs",
            "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod \
             move mut pub ref return self Self static struct super trait true type unsafe use where while",
        )
    },
    Language {
        quotes: &[
            quote("\"\"\"", true, true),
            quote("'''", true, true),
            DOUBLE,
            SINGLE,
        ],
        ..script(
            "python py python3",
            "and as assert async await break case class continue def del elif else except False finally for from \
             global if import in is lambda match None nonlocal not or pass raise return self True try while with yield",
        )
    },
    Language {
        quotes: &[DOUBLE, SINGLE, quote("`", true, true)],
        ..c_like(
            "javascript js jsx mjs typescript ts tsx",
            "abstract any as async await boolean break case catch class const continue declare default delete do else \
             enum export extends false finally for from function if implements import in instanceof interface let \
             namespace never new null number of private protected public readonly return static string super switch \
             this throw true try type typeof undefined unknown var void while yield",
        )
    },
    Language {
        quotes: &[DOUBLE, SINGLE, quote("`", false, true)],
        ..c_like(
            "go golang",
            "any bool break byte case chan const continue default defer else error fallthrough false for func go goto \
             if import int interface map nil package range return rune select string struct switch true type var",
        )
    },
    c_like(
        "c h cpp c++ cc hpp cxx",
        "auto bool break case catch char class const constexpr continue default delete do double else enum extern \
         false float for if include inline int long namespace new noexcept nullptr operator override private protected \
         public return short signed sizeof static struct switch template this throw true try typedef typename union \
         unsigned using virtual void volatile while",
    ),
    c_like(
        "java kotlin kt scala groovy csharp cs c# swift dart",
        "abstract as async await bool boolean break byte case catch char class const continue data def default do \
         double else enum extends extension false final finally float for foreach fun func get guard if implements \
         import in init int interface internal is lateinit let long namespace new nil null object open override \
         package private protected protocol public readonly return sealed self set static string struct super switch \
         this throw throws trait true try typealias using val var void when where while yield",
    ),
    Language {
        line_comments: &["//", "#"],
        ..c_like(
            "php",
            "abstract array as break case catch class const continue default do echo else elseif extends false final \
             finally fn for foreach function if implements include interface match namespace new null private \
             protected public require return self static switch this throw trait true try use while yield",
        )
    },
    script(
        "ruby rb elixir ex exs crystal",
        "alias and begin break case class cond def defmodule defp do else elsif end ensure false fn for if in module \
         next nil not or raise require rescue return self super then true unless until use when while with yield",
    ),
    Language {
        // Output and texts in here-documents contain single quotes, so a string must end on its
        // line.
        quotes: &[quote("'", false, false), DOUBLE],
        ..script(
            "sh bash shell zsh fish console shell-session dockerfile docker makefile make",
            "ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM RUN USER WORKDIR case cd do done echo elif else esac eval exec \
             exit export fi for function if in local return set source then trap unset while",
        )
    },
    Language {
        line_comments: &["--"],
        quotes: &[quote("'", false, true), quote("\"", false, false)],
        ignores_case: true,
        ..c_like(
            "sql sqlite postgresql postgres mysql",
            "add all alter and as asc begin between by case check column commit constraint create cross default delete \
             desc distinct drop else end exists foreign from full group having if in index inner insert into is join \
             key left like limit not null offset on or order outer primary references returning right rollback select \
             set table then union unique update using values view when where with",
        )
    },
    Language {
        colored_names: ColoredNames::QuotedKeys,
        ..c_like("json jsonc json5 jsonl", "false null true")
    },
    Language {
        quotes: &[DOUBLE, quote("'", false, false)],
        colored_names: ColoredNames::KeysBeforeColon,
        ..script("yaml yml", "false no null true yes")
    },
    Language {
        quotes: &[
            quote("\"\"\"", true, true),
            quote("'''", false, true),
            DOUBLE,
            quote("'", false, false),
        ],
        line_comments: &["#", ";"],
        colored_names: ColoredNames::KeysBeforeEquals,
        ..script("toml ini cfg conf properties env dotenv", "false true")
    },
    Language {
        line_comments: &[],
        block_comment: Some(("<!--", "-->")),
        // A text may contain single quotes.
        quotes: &[quote("\"", false, false)],
        colored_names: ColoredNames::Tags,
        ..c_like("html xml svg xhtml vue svelte", "")
    },
    Language {
        line_comments: &[],
        ..c_like("css scss less", "important")
    },
    Language {
        line_comments: &["--"],
        block_comment: Some(("--[[", "]]")),
        ..c_like(
            "lua",
            "and break do else elseif end false for function goto if in local nil not or repeat return then true until \
             while",
        )
    },
    Language {
        line_comments: &["--"],
        block_comment: Some(("{-", "-}")),
        quotes: &[DOUBLE],
        ..c_like(
            "haskell hs elm",
            "case class data deriving do else if import in infixl infixr instance let module newtype of then type where",
        )
    },
];

impl Language {
    /// Finds the language of a code block by its info string, such as `rust,ignore`.
    pub(super) fn of(info: &str) -> Option<&'static Self> {
        let name = name(info)?;
        LANGUAGES
            .iter()
            .find(|language| language.names.split(' ').any(|known| known == name))
    }

    /// Returns whether a word is a keyword.
    pub(super) fn has_keyword(&self, word: &str) -> bool {
        self.keywords.split_ascii_whitespace().any(|keyword| {
            if self.ignores_case {
                keyword.eq_ignore_ascii_case(word)
            } else {
                keyword == word
            }
        })
    }
}

/// Returns the name of the language in an info string, in lower case.
pub(super) fn name(info: &str) -> Option<String> {
    let is_end = |c: char| c.is_whitespace() || matches!(c, ',' | '{' | '}' | ':');
    let name = info.split(is_end).find(|part| !part.is_empty())?;
    Some(name.trim_start_matches('.').to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn language_is_found_by_the_first_word_of_the_info_string() {
        for (info, keyword) in [
            ("rust", "fn"),
            ("Rust,ignore", "fn"),
            ("{.python .numbered}", "def"),
            ("ts twoslash", "const"),
            ("SQL", "SELECT"),
            ("sh:run.sh", "fi"),
        ] {
            assert!(
                Language::of(info).is_some_and(|language| language.has_keyword(keyword)),
                "{info}"
            );
        }
        for info in ["", "text", "brainfuck", ",", "rus"] {
            assert!(Language::of(info).is_none(), "{info}");
        }
    }

    #[test]
    fn each_name_has_one_language() {
        let mut names: Vec<&str> = LANGUAGES
            .iter()
            .flat_map(|language| language.names.split(' '))
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
