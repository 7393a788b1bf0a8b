//! Recognizes errors about a prompt that is too long, and the context window that they state.
//!
//! Pure. There is no common code: services, servers and gateways each have words of their own, so
//! an error is recognized by its codes, by phrases, and by what it compares. The tests list the
//! wordings.
//!
//! Elsewhere: all other errors (`failure.rs`), the summary that follows
//! (`actors/src/run/machine/turn/compaction.rs`).

/// Codes and types of errors about the length of a prompt.
const CODES: [&str; 6] = [
    "context_length_exceeded",
    "context_window_exceeded",
    "exceed_context_size",
    "max_prompt_tokens_exceeded",
    "request_too_large",
    "string_above_max_context",
];

/// Texts that only errors about the length of a prompt contain.
const PHRASES: [&str; 12] = [
    "maximum context length",
    "maximum prompt length",
    "maximum model length",
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "input too long",
    "context window",
    "context size",
    "model token limit",
    "too many tokens",
    "reduce the length of the messages",
];

/// Words for the part of a request, its measure and the comparison: an error that contains one of
/// each is about the length of a prompt.
const SUBJECTS: [&str; 4] = ["prompt", "input", "context", "messages"];
const MEASURES: [&str; 4] = ["token", "length", "context", "window"];
const COMPARISONS: [&str; 14] = [
    "exceed",
    "too long",
    "too large",
    "too big",
    "longer than",
    "larger than",
    "greater than",
    "more than",
    "max length",
    "must be <=",
    "must be less",
    "should be [",
    "over the limit",
    "surpass",
];

/// Texts of errors about the length of one field, such as an id, or of the answer.
const OTHER_LENGTHS: [&str; 4] = [
    "string too long",
    "array too long",
    "string_above_max",
    "array_above_max",
];

/// Size from which the maximum length of a text field is that of a prompt, in characters.
const MIN_PROMPT_FIELD_CHARS: u64 = 100_000;

/// Texts that precede the size of the context window.
const BEFORE_WINDOW: [&str; 15] = [
    "\"n_ctx\":",
    "maximum context length is ",
    "maximum context length of ",
    "context length is only ",
    "maximum prompt length is ",
    "maximum model length of ",
    "model token limit: ",
    "limit of ",
    "should be [1, ",
    "must be <= ",
    "maximum length ",
    "tokens allowed (",
    "context size (",
    "too large for model with ",
    " > ",
];

/// Smallest window that is believed, in tokens. A smaller number is something else.
const MIN_WINDOW_TOKENS: u64 = 512;

/// Returns whether an error is about the length of the prompt. `message` and `codes` are in lower
/// case.
pub(super) fn is_about_prompt_length(message: &str, codes: &str) -> bool {
    let contains = |texts: &[&str]| texts.iter().any(|text| message.contains(text));
    if CODES.iter().any(|code| codes.contains(code)) {
        return true;
    }
    if OTHER_LENGTHS
        .iter()
        .any(|text| message.contains(text) || codes.contains(text))
    {
        let is_of_messages = contains(&["'messages'", "'input'", ".content"]);
        return is_of_messages
            && (message.contains("array too long")
                || largest_number(message) >= MIN_PROMPT_FIELD_CHARS);
    }
    if is_rejected_setting(message) {
        return false;
    }
    contains(&PHRASES) || contains(&SUBJECTS) && contains(&MEASURES) && contains(&COMPARISONS)
}

/// Returns whether the error rejects a setting of the request: its name, or a value that must be
/// larger.
fn is_rejected_setting(message: &str) -> bool {
    const TEXTS: [&str; 7] = [
        "unknown parameter",
        "unrecognized",
        "unsupported parameter",
        "extra inputs",
        "should be greater",
        "must be greater",
        "budget_tokens",
    ];
    TEXTS.iter().any(|text| message.contains(text))
}

/// Returns the context window in tokens that an error about the length of the prompt states. `text`
/// is the message, or the whole body, in lower case.
pub(super) fn stated_window(text: &str) -> Option<u64> {
    // The maximum length of a field counts characters.
    if text.contains("string too long") {
        return None;
    }
    for phrase in BEFORE_WINDOW {
        let Some(at) = text.find(phrase) else {
            continue;
        };
        let number = first_number(text[at + phrase.len()..].trim_start());
        if let Some(window) = number.filter(|window| *window >= MIN_WINDOW_TOKENS) {
            return Some(window);
        }
    }
    None
}

/// Returns the number that a text begins with; commas between its digits are skipped.
fn first_number(text: &str) -> Option<u64> {
    let mut digits = String::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let separates = character == ',' && characters.peek().is_some_and(char::is_ascii_digit);
        if character.is_ascii_digit() {
            digits.push(character);
        } else if !separates {
            break;
        }
    }
    digits.parse().ok()
}

fn largest_number(text: &str) -> u64 {
    let numbers = text.split(|character: char| !character.is_ascii_digit());
    numbers
        .filter_map(|digits| digits.parse().ok())
        .max()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wordings_of_a_prompt_that_is_too_long_are_recognized() {
        for (service, message, code, window) in [
            (
                "OpenAI",
                "This model's maximum context length is 8000 tokens. However, your messages resulted in 9000 tokens.",
                "",
                Some(8_000),
            ),
            (
                "OpenAI, Responses",
                "Your input exceeds the context window of this model.",
                "",
                None,
            ),
            (
                "OpenAI, configured limit",
                "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 277798 tokens.",
                "",
                Some(272_000),
            ),
            (
                "OpenAI, field",
                "Invalid 'messages[1].content': string too long. Expected a string with maximum length 1048576, but got \
                 a string with length 1540820 instead.",
                "string_above_max_length",
                None,
            ),
            ("OpenAI, code", "too much", "context_length_exceeded", None),
            (
                "Anthropic",
                "prompt is too long: 212345 tokens > 200000 maximum",
                "",
                Some(200_000),
            ),
            (
                "Anthropic, input + max_tokens",
                "input length and `max_tokens` exceed context limit: 188000 + 20000 > 200000, decrease input length or \
                 `max_tokens` and try again",
                "",
                Some(200_000),
            ),
            (
                "Anthropic, bytes",
                "Request exceeds the maximum size",
                "request_too_large",
                None,
            ),
            (
                "Gemini",
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
                "",
                Some(1_048_576),
            ),
            (
                "Bedrock",
                "Input is too long for requested model.",
                "",
                None,
            ),
            (
                "Moonshot",
                "Invalid request: Your request exceeded model token limit: 262144 (requested: 270000)",
                "",
                Some(262_144),
            ),
            (
                "xAI",
                "This model's maximum prompt length is 131072 but the request contains 150000 tokens.",
                "",
                Some(131_072),
            ),
            (
                "GitHub Copilot",
                "prompt token count of 141000 exceeds the limit of 128000",
                "model_max_prompt_tokens_exceeded",
                Some(128_000),
            ),
            ("Z.ai", "Prompt exceeds max length", "1261", None),
            (
                "Z.ai, finish",
                "the answer ended",
                "model_context_window_exceeded",
                None,
            ),
            (
                "DashScope",
                "Range of input length should be [1, 98304]",
                "invalid_parameter_error",
                Some(98_304),
            ),
            (
                "MiniMax",
                "invalid params, context window exceeds limit (2013)",
                "",
                None,
            ),
            (
                "Volcano Ark",
                "Input length 203743 exceeds the maximum length 202752",
                "invalidparameter",
                Some(202_752),
            ),
            (
                "DeepSeek, OpenRouter",
                "This endpoint's maximum context length is 163,840 tokens. However, you requested about 170,000 tokens",
                "",
                Some(163_840),
            ),
            (
                "Mistral",
                "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
                "",
                Some(32_768),
            ),
            (
                "Groq",
                "Please reduce the length of the messages or completion.",
                "",
                None,
            ),
            (
                "Cohere",
                "too many tokens: total number of tokens in the prompt cannot exceed 4081",
                "",
                None,
            ),
            (
                "TGI",
                "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens",
                "",
                Some(4_096),
            ),
            (
                "vLLM",
                "The decoder prompt (length 163840) is longer than the maximum model length of 131072. Make sure that \
                 `max_model_len` is no smaller than the number of text tokens plus multimodal tokens.",
                "400",
                Some(131_072),
            ),
            (
                "vLLM, served",
                "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens in the messages",
                "",
                Some(4_096),
            ),
            (
                "llama.cpp",
                "the request exceeds the available context size, try increasing it",
                "exceed_context_size_error",
                None,
            ),
            (
                "llama.cpp, number",
                "request (9000 tokens) exceeds the available context size (8192 tokens)",
                "",
                Some(8_192),
            ),
            (
                "Ollama",
                "prompt too long; exceeded max context length by 12 tokens",
                "",
                None,
            ),
            (
                "LM Studio",
                "The number of tokens to keep from the initial prompt is greater than the context length.",
                "",
                None,
            ),
            (
                "SGLang",
                "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
                "",
                None,
            ),
        ] {
            let message = message.to_lowercase();
            assert!(is_about_prompt_length(&message, code), "{service}");
            assert_eq!(stated_window(&message), window, "{service}");
        }
    }

    #[test]
    fn other_errors_are_not_about_the_length_of_the_prompt() {
        for (message, code) in [
            (
                "Invalid 'input[3].id': string too long. Expected a string with maximum length 64, but got 70",
                "x",
            ),
            (
                "Invalid 'messages[2].tool_calls[0].id': string too long. Expected maximum length 40",
                "string_above_max_length",
            ),
            (
                "Invalid 'tools': array too long. Expected an array with maximum length 128",
                "array_above_max_length",
            ),
            (
                "max_tokens: 64000 > 32000, which is the maximum allowed number of output tokens",
                "invalid_request_error",
            ),
            (
                "max_completion_tokens is too large: 200000. This model supports at most 128000 completion tokens",
                "x",
            ),
            (
                "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6000000 bytes > 5242880 bytes",
                "x",
            ),
            (
                "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
                "invalid_request_error",
            ),
            (
                "`max_tokens` must be greater than `thinking.budget_tokens`. See #max-tokens-and-context-window-size",
                "x",
            ),
            (
                "Unrecognized request argument supplied: context window",
                "x",
            ),
            ("temperature must be at most 2", "invalid_value"),
            ("the model `m` does not exist", "model_not_found"),
            (
                "Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
                "x",
            ),
            ("Unable to process input image", "INVALID_ARGUMENT"),
            ("", ""),
        ] {
            assert!(
                !is_about_prompt_length(&message.to_lowercase(), code),
                "{message}"
            );
        }
    }

    #[test]
    fn window_is_read_from_a_body_of_llama_cpp() {
        let body =
            r#"{"error":{"code":400,"message":"too long","n_prompt_tokens":9000,"n_ctx":8192}}"#;
        assert_eq!(stated_window(body), Some(8_192));
        assert_eq!(
            stated_window("the limit of 5"),
            None,
            "no window is that small"
        );
    }
}
