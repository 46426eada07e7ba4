"""Conversations to prompts, with built-in renderers; a template inside a model file is never evaluated."""

from engine.chat.encoding import EncodedChat, encode_chat
from engine.chat.messages import ChatOptions, Message, Role, ToolCall
from engine.chat.recognition import TEMPLATES, recognise
from engine.chat.rendering import ChatTemplate, Control, RenderedChat, Text

__all__ = [
    "TEMPLATES",
    "ChatOptions",
    "ChatTemplate",
    "Control",
    "EncodedChat",
    "Message",
    "RenderedChat",
    "Role",
    "Text",
    "ToolCall",
    "encode_chat",
    "recognise",
]
