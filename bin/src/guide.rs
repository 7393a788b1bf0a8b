//! The pages of the user guide: the files of `bin/guide`, in the order of its table of contents.

/// A page of the guide.
pub(crate) struct Page {
    /// Name of the page on the command line, and of its file.
    pub(crate) topic: &'static str,
    /// The page as Markdown.
    pub(crate) text: &'static str,
}

macro_rules! pages {
    ($($topic:literal)*) => {
        &[$(Page { topic: $topic, text: include_str!(concat!("../guide/", $topic, ".md")) }),*]
    };
}

/// All pages.
pub(crate) const PAGES: &[Page] = pages![
    "quickstart" "models" "local-models" "conversations" "agents" "background" "monitor" "permissions" "command-rules"
    "artifacts" "memory" "budgets" "tools" "skills" "hooks" "mcp" "scripting" "server" "operations" "upgrade" "security" "cli"
    "configuration" "events" "glossary" "reference/rules" "reference/threats" "reference/conformance"
];

/// Returns the page of a topic.
pub(crate) fn page(topic: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.topic == topic)
}

impl Page {
    /// Returns the first heading.
    pub(crate) fn title(&self) -> &'static str {
        self.text
            .lines()
            .find_map(|line| line.strip_prefix("# "))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Returns the topics of the files in a folder of the guide.
    fn files(folder: &str) -> Vec<String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("guide")
            .join(folder);
        let names = std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let pages = names.filter_map(|name| Some(format!("{folder}{}", name.strip_suffix(".md")?)));
        pages.filter(|topic| topic != "SUMMARY").collect()
    }

    #[test]
    fn every_file_of_the_guide_is_a_page() {
        let mut files = [files(""), files("reference/")].concat();
        files.sort();
        let mut topics: Vec<&str> = PAGES.iter().map(|page| page.topic).collect();
        topics.sort_unstable();
        assert_eq!(topics, files);
    }

    #[test]
    fn table_of_contents_lists_all_pages_in_order() {
        let summary = include_str!("../guide/SUMMARY.md");
        let listed: Vec<&str> = summary
            .lines()
            .filter_map(|line| line.split_once("](")?.1.strip_suffix(".md)"))
            .collect();
        assert_eq!(
            listed,
            PAGES.iter().map(|page| page.topic).collect::<Vec<_>>()
        );
        assert!(PAGES.iter().all(|page| !page.title().is_empty()));
    }
}
